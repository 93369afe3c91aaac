"""The specification (:mod:`spec`) as another implementation of this project's chains."""
