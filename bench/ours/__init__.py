"""What minutebook does, measured through the calls that its users make, or through its ports."""
