"""What changes a running gateway: the admin door, operations, and Triton's extensions for it."""
