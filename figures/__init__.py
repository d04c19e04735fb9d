"""Every figure and the page that shows them. A figure draws what was computed elsewhere; it computes nothing itself."""
