"""The claims lab: what each paper says is better than what, trained and measured again, with its tests and verdicts."""

from saccade.lab.claims.claim import Claim, Variant, claim_names, load_claim
from saccade.lab.claims.findings import Findings, gather
from saccade.lab.claims.page import write_index, write_report
from saccade.lab.claims.plan import Request, Run, data_defaults, plan
from saccade.lab.claims.run import Outcome, run_claims
from saccade.lab.claims.statistics import Comparison, Verdict

__all__ = [
    "Claim",
    "Comparison",
    "Findings",
    "Outcome",
    "Request",
    "Run",
    "Variant",
    "Verdict",
    "claim_names",
    "data_defaults",
    "gather",
    "load_claim",
    "plan",
    "run_claims",
    "write_index",
    "write_report",
]
