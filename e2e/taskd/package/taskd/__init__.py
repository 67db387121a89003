"""TaskD's public name for the stand-in (e2e/taskd); the package of that name on a public index is somebody else's."""
