"""What knows neither chains nor runs: errors, files, text input, wording."""
