cp node/mongoose-story.mjs "$CLIENTS/node/mongoose-story.mjs" && exec node "$CLIENTS/node/mongoose-story.mjs"
