"""The wire protocol of ``/v1/systemone``: bytes to a checked request, answers to bytes.

Nothing here knows of HTTP servers, queues or models.
"""
