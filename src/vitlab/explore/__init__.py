"""A local web page that shows attention and predictions of a model: `vitlab explore MODEL [MODEL] --data DATA`.

- `images.py`: images of a data set, and untrusted uploads;
- `conditions.py`: what is shown: an image, its corruption, hidden patches and ablations;
- `ablations.py`: ablations of heads, branches and blocks with `vitlab.intervene`;
- `shown_model.py`: a model of the page, its input for a condition, and its traces;
- `views.py`, `relevance.py`, `causal.py`: data of the panels, of the overlays and of the causal trace;
- `requests.py`, `server.py`: the requests of the page, and the HTTP application;
- `app.py`: loads models and data and serves them on 127.0.0.1.

The page is in `page/`, and the view that it shares with reports in `reporting/templates/attention_*`.
"""
