"""A local web page that shows attention and predictions of a model: `vitlab explore MODEL [MODEL] --data DATA`.

`images` reads images, including untrusted uploads; `views` computes the data that the page shows; `server` is the HTTP
application; `app` loads models and data and serves them on 127.0.0.1. The page is in `page/`, and the view that it
shares with reports in `reporting/templates/attention_view.*`.
"""
