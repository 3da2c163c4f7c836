"""``report.html``: a page about a build, made from the build's files only.

page, rows, checks   what is on it, and its templates
headline             its first line: fit to train on or not, and what was lost
plots, charts, scales  its charts: what they show, their bars, their axes
samples, losses      examples of the shards, and refused rows
changes              what differs from the build before, for pages that lie outside their build
refused              the page of a refused build
template             the engine, the style and the script of all pages
"""
