"""A local page to look inside a model: `vitlab explore MODEL [MODEL] --data DATA`.

`pictures` reads images, also those of strangers; `looking` turns a model, an image and what is done to it into what
the page shows; `server` hands that out; `opening` loads it all and serves it on 127.0.0.1. The page itself is `page/`,
and the view that it shares with reports is `reporting/templates/attention_view.*`.
"""
