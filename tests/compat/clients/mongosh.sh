exec "$PYTHON" mongosh/story.py "$CLIENTS/node/node_modules/.bin/mongosh"
