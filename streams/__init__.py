"""The rooms that data walks through: window, join, features, mixture, detect, diagnose, alert; and their shells."""
