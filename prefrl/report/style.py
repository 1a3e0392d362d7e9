"""The page's style sheet: light and dark, from 360 px up, for the screen and for paper."""

CSS = """
:root { color-scheme: light dark; --paper: #fcfcfb; --card: #ffffff; --ink: #1c1c1a; --soft: #5c5b57;
  --faint: #e3e2de; --blue: #2a78d6; --orange: #c94f1c; }
@media (prefers-color-scheme: dark) { :root { --paper: #161615; --card: #1f1f1e; --ink: #eceae5; --soft: #aeaca5;
  --faint: #3a3936; --blue: #5b9df0; --orange: #f08a5d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 1.25rem 1rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.25rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .5rem; }
p { margin: .25rem 0 .75rem; max-width: 70ch; overflow-wrap: anywhere; }
.lead, figcaption, footer, dt, .note { color: var(--soft); }
figcaption, .note { font-size: .875rem; line-height: 1.4; margin-top: .5rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 1rem; }
figure { margin: 0; padding: 1rem; background: var(--card); border: 1px solid var(--faint); border-radius: 8px;
  min-width: 0; break-inside: avoid; }
.wide { grid-column: 1 / -1; }
svg { display: block; width: 100%; height: auto; }
.missing { color: var(--soft); border-left: 3px solid var(--faint); padding-left: .75rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem 2rem; margin: 1rem 0; }
.tiles dt { font-size: .875rem; }
.tiles dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0;
  border-bottom: 1px solid var(--faint); }
th { font-weight: 600; white-space: nowrap; }
td { max-width: 32rem; overflow-wrap: break-word; }
details { margin: .5rem 0; }
@media (max-width: 600px) { .settings :is(th, td):nth-child(3) { display: none; } }
summary { cursor: pointer; }
code { font-size: .9em; }
footer { margin-top: 2.5rem; font-size: .875rem; }
"""
