"""The web app in which people compare clips. It talks to the comparison database only, and imports no torch."""
