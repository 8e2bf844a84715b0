"""The claims lab: what each paper says is better than what, trained and measured again, with its tests and verdicts."""

from saccade.claims.claim import Claim, Variant, claim_names, load_claim
from saccade.claims.findings import Findings, gather
from saccade.claims.lab import Outcome, run_claims
from saccade.claims.page import write_index, write_report
from saccade.claims.plan import Request, Run, footings, plan
from saccade.claims.statistics import Comparison, Verdict

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
    "footings",
    "gather",
    "load_claim",
    "plan",
    "run_claims",
    "write_index",
    "write_report",
]
