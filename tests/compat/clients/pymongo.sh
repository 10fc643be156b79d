exec "$PYTHON" pymongo/story.py
