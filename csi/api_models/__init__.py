"""The JSON objects of the admin API, of `--json` and of OpenAPI: one pydantic model each, built from rows."""

from csi.api_models.adapters import AdapterDetail, AdapterJson, ConformanceReport
from csi.api_models.alerts import AlertStatus, MuteJson, NotificationTest, TargetTest, Unmuted
from csi.api_models.base import ApiModel
from csi.api_models.catalog import (
    ChannelAdded, ChannelComparison, ChannelDetail, ChannelJson, ChannelList, ChannelPaused, ChannelPriority,
    ChannelRemoved, ChannelResumed, ChannelTrend, HotVideo, HotVideos, JobChanged, JobDetail, JobEnqueued, JobJson,
    JobList, JobPage, Movers, TrendDay, VideoDetail, VideoList, VideoPage, all_channels, describe_job,
    describe_jobs, one_channel,
)  # fmt: skip
from csi.api_models.dead_letters import (
    DeadLetterDetail, DeadLetterGroups, DeadLetterList, DeadLetterPage, DeadLetterPlan, DeadLetterPrune,
    DiscardReport, ReplayReport,
)  # fmt: skip
from csi.api_models.delivery import (
    DeliveryStatus, DestinationChanged, DestinationDetail, DestinationJson, DestinationRemoved, DestinationSummaries,
    DestinationSummaryJson, DestinationTest, PauseResult, SampleTestJson, SecretRotated,
)  # fmt: skip
from csi.api_models.events import (
    AttemptJson, EventDetail, EventJson, EventList, ResendReport, TimelineJson, TimelineStep, Trace,
)  # fmt: skip
from csi.api_models.inbound import (
    InboundMessageContent, InboundMessageList, InboundReplay, InboundStatus, SenderAccessJson, SenderRemoved,
    SignedRequest,
)  # fmt: skip
from csi.api_models.processing import ProcessedVideoDetail, ProcessedVideoList
from csi.api_models.quota import NoQuota, QuotaJson, quota
from csi.api_models.slo import SloReport
from csi.api_models.status import (
    AcknowledgeReport, AuditLog, Backlog, DoctorReport, InstallationStatus, ProblemList, PruneReport, QueueJson,
    StatusJson,
)  # fmt: skip
from csi.api_models.watches import (
    ImportReport, PollResult, RemovalReport, SourcePollReport, WatchAdded, WatchChanged, WatchDetail, WatchJson,
    WatchList, WatchOptionsChanged, WatchPaused, WatchReads,
)  # fmt: skip
