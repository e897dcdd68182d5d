"""Settings of every market process, read from the environment (prefix ``ZOO_``) once, at start."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """See ``.env.example`` for a sentence on each variable."""

    model_config = SettingsConfigDict(env_prefix="ZOO_", extra="ignore")

    network: Literal["mainnet", "devnet"] = "devnet"
    database_url: str
    redis_url: str
    rpc_url: str
    ipfs_api: str
    gateway_url: str
    public_rpc_url: str | None = None  # what clients are told; defaults to rpc_url
    deployment_file: str = Field(description="JSON with chain_id, block and the contracts' addresses")
    operator_key: SecretStr = Field(description="private key holding OPERATOR_ROLE")

    domain: str = Field(default="localhost", description="host that SIWE messages must name")
    public_url: str = Field(default="http://localhost", description="URI that SIWE messages must name")
    session_hours: PositiveInt = 12
    max_body_bytes: PositiveInt = 256 * 1024
    max_blob_bytes: PositiveInt = 64 * 1024 * 1024

    auction_interval_seconds: PositiveFloat = 5.0
    sweep_interval_seconds: PositiveFloat = 2.0
    chain_poll_seconds: PositiveFloat = 1.0
    heartbeat_timeout_seconds: PositiveFloat = 30.0
    lease_seconds: PositiveFloat = 30.0
    round_deadline_seconds: PositiveFloat = 600.0
    window_seconds: PositiveFloat = 10.0
    confirmations: PositiveInt = Field(default=12, description="blocks to wait where the chain has no finalized tag")
    stuck_after_blocks: PositiveInt = 6
    max_fee_gwei: PositiveInt = 500

    log_level: str = "INFO"
    log_json: bool = True
