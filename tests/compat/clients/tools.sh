exec "$PYTHON" tools/story.py
