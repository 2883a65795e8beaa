"""What failed, and the way back."""
