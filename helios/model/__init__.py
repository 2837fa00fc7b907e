"""The user's declarations: frozen values, standard library only."""
