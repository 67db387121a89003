"""What is given to clusters: images, their bill of materials, the bundle for installing without a network."""
