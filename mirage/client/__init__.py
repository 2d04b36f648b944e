"""A Mirage daemon from Python: ``Client().chains()``. Needs nothing but the standard library."""

from mirage.client.client import Client as Client
from mirage.client.documents import Answer as Answer
from mirage.client.documents import Chain as Chain
from mirage.client.documents import ChainPage as ChainPage
from mirage.client.documents import Entry as Entry
from mirage.client.documents import Event as Event
from mirage.client.documents import Explanation as Explanation
from mirage.client.documents import Forecast as Forecast
from mirage.client.documents import Link as Link
from mirage.client.documents import LinkRequest as LinkRequest
from mirage.client.documents import ModelVersion as ModelVersion
from mirage.client.documents import PastError as PastError
from mirage.client.documents import Predictions as Predictions
from mirage.client.documents import Predictors as Predictors
from mirage.client.documents import PredictorUse as PredictorUse
from mirage.client.documents import QueuedJob as QueuedJob
from mirage.client.documents import QueuePage as QueuePage
from mirage.client.documents import Replay as Replay
from mirage.client.errors import ClientError as ClientError
from mirage.client.errors import DaemonUnreachable as DaemonUnreachable
from mirage.client.errors import Missing as Missing
from mirage.client.errors import Refusal as Refusal
from mirage.client.records import Records as Records
