"""The report pages: the report of a run, the comparison of runs, the index of runs, and a dashboard for Grafana.

Each page is one self-contained HTML file. Text and SVG drawings need no script; the one script (``templates/page.js``)
copies the command, filters, and draws the zoomable timeline, after ``common/style/theme.js``, which switches the theme.
A page's content security policy allows that script only. The dashboard (:mod:`.dashboard`) is JSON.

Pure except for reading the templates. Colours are variables of ``common/style/style.css``, light and dark; no meaning
depends on colour alone.
"""
