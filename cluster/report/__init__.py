"""The report pages: the report of a run, the comparison of runs, the index of runs, and a dashboard for Grafana.

Each page is one self-contained HTML file. Text and SVG drawings need no script; the one script (``templates/page.js``)
switches the theme, copies the command, filters, and draws the zoomable timeline. A page's content security policy
allows that script only. The dashboard (:mod:`.dashboard`) is JSON.

Pure except for reading the templates. Colours are variables of ``templates/style.css``, light and dark; no meaning
depends on colour alone.
"""
