"""What codecs share: elements, names, errors, compression."""
