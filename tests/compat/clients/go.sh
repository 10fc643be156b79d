exec "$CLIENTS/go-story"
