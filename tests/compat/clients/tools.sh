exec bash tools/story.sh
