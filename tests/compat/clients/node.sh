# Modules are found beside the script, so the script goes where the modules are.
cp node/story.mjs "$CLIENTS/node/story.mjs" && exec node "$CLIENTS/node/story.mjs"
