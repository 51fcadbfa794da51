"""One gateway makes way for the next: listeners, connections and workers go over, and no request is lost."""
