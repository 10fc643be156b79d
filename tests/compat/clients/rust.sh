exec "$CLIENTS/rust-target/debug/story"
