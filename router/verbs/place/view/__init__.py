"""A placement for people: tables, sentences, pictures, a page, JSON."""
