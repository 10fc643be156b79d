exec java -cp "$CLIENTS/java/classes/story:$CLIENTS/java/lib/*" Story
