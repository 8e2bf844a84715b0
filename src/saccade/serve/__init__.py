"""The service and its page: `saccade serve INDEX` answers searches, explains them, and offers every task's models.

FastAPI, uvicorn and prometheus-client are the extra `serve`: the verb looks for them before it imports this room.
"""
