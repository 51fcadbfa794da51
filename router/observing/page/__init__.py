"""The operators' page: the status as it changes, by server-sent events, and the files that show it."""
