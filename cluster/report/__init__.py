"""Pages for people: the report of a run, the comparison of runs, and the index of all runs.

Each page is one HTML file that needs nothing else: no network, no other file, no library. What it says is in its text
and its SVG drawings, which need no script; the one script (``templates/page.js``) is for comfort: another theme,
copying the command, a filter, the timeline that can be zoomed. A page's content security policy lets that script run
and nothing else.

Pure but for reading the templates. Colours are variables of ``templates/style.css``, light and dark; no meaning hangs
on colour alone.
"""
