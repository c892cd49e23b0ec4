"""Static pictures as SVG files: readable in light and dark, without scripts."""
