"""Settings of every market process, from the environment (prefix ``ZOO_``)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

from eth_utils.address import is_address, to_checksum_address
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from zoo_protocol.messages import MAX_PROMISE_SECONDS

KeyRole = Literal["operator", "acknowledger", "challenger", "previous_challenger"]
NO_CAPACITY_AFTER = 3
"""A round that stays open fails its job after this many round deadlines."""


class Settings(BaseSettings):
    """Settings; ``.env.example`` describes each variable."""

    model_config = SettingsConfigDict(
        env_prefix="ZOO_",
        env_ignore_empty=True,
        extra="ignore",
        hide_input_in_errors=True,  # an error of one variable must not print the others
    )

    network: Literal["mainnet", "devnet"] = "devnet"
    database_url: str = Field(repr=False)
    database_connect_seconds: int = Field(default=5, ge=2, description="limit of a connection attempt")
    database_statement_seconds: PositiveFloat = Field(default=30.0, description="limit of a statement")
    database_lock_seconds: PositiveFloat = Field(default=10.0, description="limit of a wait for a lock")
    database_pool_seconds: PositiveFloat = Field(default=10.0, description="limit of a wait for a free connection")
    redis_url: str = Field(repr=False)
    rpc_url: str = Field(repr=False, description="one URL, or several, separated by commas")
    ipfs_api: str
    gateway_url: str = Field(description="one URL, or several, separated by commas; clients use all in parallel")
    public_rpc_url: str | None = None  # for clients; default: rpc_url
    deployment_file: str = Field(description="JSON with chain_id, block and the contracts' addresses")
    operator_key: SecretStr | None = Field(default=None, description="private key holding OPERATOR_ROLE")
    operator_keystore: Path | None = Field(default=None, description="encrypted file with that key instead")
    operator_keystore_password: SecretStr | None = None
    operator_keystore_password_file: Path | None = None
    acknowledger_key: SecretStr | None = Field(default=None, description="private key holding ACKNOWLEDGER_ROLE")
    acknowledger_keystore: Path | None = Field(default=None, description="encrypted file with that key instead")
    acknowledger_keystore_password: SecretStr | None = None
    acknowledger_keystore_password_file: Path | None = None
    challenger_key: SecretStr | None = Field(default=None, description="private key of the challenger account")
    challenger_keystore: Path | None = Field(default=None, description="encrypted file with that key instead")
    challenger_keystore_password: SecretStr | None = None
    challenger_keystore_password_file: Path | None = None
    previous_challenger_key: SecretStr | None = Field(
        default=None, description="private key of the previous challenger account, until its disputes are over"
    )
    previous_challenger_keystore: Path | None = Field(default=None, description="encrypted file with that key instead")
    previous_challenger_keystore_password: SecretStr | None = None
    previous_challenger_keystore_password_file: Path | None = None

    domain: str = Field(default="localhost", description="host in SIWE messages")
    public_url: str = Field(default="http://localhost", description="URI in SIWE messages")
    session_hours: PositiveInt = 12
    console_session_hours: int = Field(default=8, ge=1, le=24, description="longest session of the console")
    block_explorer_url: str = Field(
        default="",
        pattern="^(https?://[^\\s{}]+)?$",
        description="root of a block explorer, to which the console links addresses and transactions",
    )
    admins: str = Field(default="", description="wallets that are admins, separated by commas")
    cors_origins: str = Field(default="", description="origins that browsers may call from, separated by commas")
    requests_per_minute: NonNegativeInt = Field(default=1200, description="of one account; 0: no limit")
    requests_per_minute_ip: NonNegativeInt = Field(default=6000, description="of one address; 0: no limit")
    metrics_token: SecretStr | None = Field(
        default=None, min_length=16, description="bearer token of GET /metrics; None: for this host only"
    )
    webhooks_per_account: PositiveInt = 10
    webhooks_to_private_addresses: bool = Field(default=False, description="for a devnet only")
    max_body_bytes: PositiveInt = 256 * 1024
    max_blob_bytes: PositiveInt = 64 * 1024 * 1024
    blob_bytes_per_day: PositiveInt = Field(default=4 * 1024**3, description="storage quota of an account")

    max_parameters: int = Field(
        default=4_000_000_000,
        gt=0,
        le=4_000_000_000,  # sums of more values of 2^42 could exceed int64 in one of 2,048 counters of a sketch
        description="that a job trains; the tier's memory also bounds them",
    )
    max_base_parameters: PositiveInt = Field(
        default=20_000_000_000,
        description="of a base model; a worker needs four bytes of memory for each while it computes a loss",
    )
    worker_memory_gib: PositiveFloat | None = Field(
        default=None, description="of a worker that aggregates, if less than it measures"
    )
    base_models_folder: Path | None = Field(
        default=None, description="a worker's copies of base models; None: in the folder for temporary files"
    )
    base_models_gib: PositiveInt = Field(default=100, description="of these copies; the oldest are removed first")

    retention_days: int = Field(default=180, ge=30, description="disputes and claims are over long before")

    auction_interval_seconds: PositiveFloat = 5.0
    reservation_after_seconds: PositiveFloat = 600.0
    reservation_seconds: PositiveFloat = 3_600.0
    price_notice_seconds: PositiveFloat = 86_400.0
    sweep_interval_seconds: PositiveFloat = 2.0
    chain_poll_seconds: PositiveFloat = 1.0
    heartbeat_timeout_seconds: float = Field(default=45.0, gt=0, le=60, description="nodes poll for two thirds of it")
    lease_seconds: PositiveFloat = 30.0
    round_deadline_seconds: PositiveFloat = 600.0
    round_grace_seconds: PositiveFloat = 30.0
    tree_aggregation_min_values: NonNegativeInt = Field(
        default=1 << 27, description="payloads times parameters from which a tree of tasks aggregates a round"
    )
    window_seconds: PositiveFloat = 10.0
    onchain_disputes_enabled: bool = Field(
        default=True, description="open disputes on chain against false work if a committee can decide"
    )
    inclusion_deadline_seconds: int = Field(default=3600, ge=60, le=MAX_PROMISE_SECONDS)
    attestation_root_ca: str | None = Field(
        default=None, description="DER file of a root of trust for TEE quotes instead of Intel's, for own networks"
    )
    gpu_attestation_keys: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{64}(,[0-9a-f]{64})*$",
        description="SHA-256 of the keys that certify NVIDIA's attestation service, instead of the known ones",
    )
    environment_classes: str | None = Field(
        default=None,
        pattern="^0x[0-9a-f]{64}(,0x[0-9a-f]{64})*$",
        description="accepted environment classes, separated by commas; None: any, on a devnet only",
    )
    canary_bps: int = Field(
        default=350, ge=0, le=10_000, description="share of sampled segments with a canary or duplicate replay"
    )
    confirmations: PositiveInt = Field(default=12, description="blocks to wait if the chain has no finalized tag")
    stuck_after_blocks: PositiveInt = 6
    max_fee_gwei: PositiveInt = 500
    max_zen_per_transaction: PositiveInt = 1_000_000
    max_zen_per_day: PositiveInt = 5_000_000
    max_ether_per_day: PositiveInt = 10
    reconcile_seconds: PositiveFloat = 60.0
    settlement_interval_seconds: PositiveFloat = Field(default=3600.0, description="between batches of running jobs")
    settlement_units: PositiveInt = Field(default=5_000, description="payable units that make a batch due at once")
    settlement_max_units: PositiveInt = Field(default=10_000, description="units in a batch, unless one round has more")
    settlement_max_jobs: PositiveInt = Field(default=100, le=256, description="jobs in a batch; the contract takes 256")

    log_level: str = "INFO"
    log_json: bool = True

    def key_source(self, role: KeyRole) -> "KeySource":
        """Return the settings of the key of this role, which is the prefix of their names."""
        return KeySource(
            f"ZOO_{role.upper()}",
            key=getattr(self, f"{role}_key"),
            keystore=getattr(self, f"{role}_keystore"),
            password=getattr(self, f"{role}_keystore_password"),
            password_file=getattr(self, f"{role}_keystore_password_file"),
        )

    @property
    def upload_seconds(self) -> float:
        """Return the upload deadline of a unit after its commitment: half of the inclusion deadline."""
        return self.inclusion_deadline_seconds / 2

    @property
    def round_timeout_seconds(self) -> float:
        """Return the time after which an open round fails its job."""
        return NO_CAPACITY_AFTER * self.round_deadline_seconds

    @property
    def replay_seconds(self) -> float:
        """Return the timeout of a replay, without the time of its downloads.

        The provider had one round deadline for the whole unit.
        """
        return 6 * self.round_deadline_seconds

    @property
    def admin_addresses(self) -> frozenset[str]:
        """Return the wallets that are admins independent of the database, checksummed."""
        return frozenset(str(to_checksum_address(address)) for address in split_list(self.admins))

    @property
    def accepted_classes(self) -> list[str] | None:
        """Return the accepted environment classes; None: any."""
        return None if self.environment_classes is None else self.environment_classes.split(",")

    @property
    def cors_origin_list(self) -> list[str]:
        return split_list(self.cors_origins)

    @field_validator("admins")
    @classmethod
    def _addresses(cls, value: str) -> str:
        for address in split_list(value):
            if not is_address(address):
                raise ValueError(f"ZOO_ADMINS contains {address!r}, which is not an address")
        return value

    @model_validator(mode="after")
    def _one_key_each(self) -> Self:
        for role in get_args(KeyRole):
            self.key_source(role).check()
        return self

    @model_validator(mode="after")
    def _require_classes(self) -> Self:
        if self.network == "mainnet" and self.accepted_classes is None:
            raise ValueError(
                "ZOO_ENVIRONMENT_CLASSES is empty. On mainnet, list at least one accepted class, separated by commas. "
                "Run `zoo-compute node environment` to print the class of a machine."
            )
        return self

    @model_validator(mode="after")
    def _time_to_include(self) -> Self:
        if self.inclusion_deadline_seconds < 4 * self.window_seconds:
            raise ValueError("ZOO_INCLUSION_DEADLINE_SECONDS must be at least four times ZOO_WINDOW_SECONDS")
        return self


@dataclass(frozen=True, slots=True)
class KeySource:
    """Settings of one key. ``name`` is the prefix of its variables."""

    name: str
    key: SecretStr | None
    keystore: Path | None
    password: SecretStr | None
    password_file: Path | None

    @property
    def is_set(self) -> bool:
        return self.key is not None or self.keystore is not None

    def check(self) -> None:
        """Raise ValueError unless there is one key, one keystore with a password, or neither."""
        if self.key is not None and self.keystore is not None:
            raise ValueError(f"set {self.name}_KEY or {self.name}_KEYSTORE, not both")
        passwords = sum(password is not None for password in (self.password, self.password_file))
        if (self.keystore is not None) != (passwords == 1):
            raise ValueError(
                f"{self.name}_KEYSTORE goes with one of {self.name}_KEYSTORE_PASSWORD_FILE and "
                f"{self.name}_KEYSTORE_PASSWORD"
            )


def split_list(value: str) -> list[str]:
    """Return the items of a setting that lists them by commas."""
    return [item.strip() for item in value.split(",") if item.strip()]
