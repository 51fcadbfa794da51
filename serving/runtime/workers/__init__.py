"""Worker processes: started, watched, spoken to, measured."""
