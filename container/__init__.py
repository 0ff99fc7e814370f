"""What runs inside the image: process 1 of every host."""
