"""The threads of a validator: work that its loop gives away, and gets back."""
