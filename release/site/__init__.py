"""The pages of docs as a site: MkDocs Material, English and Chinese."""
