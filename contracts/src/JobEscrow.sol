// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Hashes} from "@openzeppelin/contracts/utils/cryptography/Hashes.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {JobIntake} from "./base/JobIntake.sol";
import {ZenIntake} from "./base/ZenIntake.sol";
import {IJobEscrow} from "./interfaces/IJobEscrow.sol";
import {IProviderStaking} from "./interfaces/IProviderStaking.sol";
import {IZenToken} from "./interfaces/IZenToken.sol";
import {Messages, UnitCommitment} from "./Messages.sol";

/// @title Escrow and settlement of jobs
/// @dev Payments are computed from the jobs' own numbers, never from the token balance. The contract always holds
/// exactly free balances, the escrow of open jobs, the unclaimed rest of batches, and held payouts of batches without a
/// veto.
contract JobEscrow is JobIntake {
    using SafeERC20 for IZenToken;
    using SafeCast for uint256;
    using Messages for UnitCommitment;

    bytes32 public constant OPERATOR_ROLE = keccak256("OPERATOR_ROLE");
    bytes32 public constant GUARDIAN_ROLE = keccak256("GUARDIAN_ROLE");
    bytes32 public constant DISPUTES_ROLE = keccak256("DISPUTES_ROLE");
    /// @notice Maximum number of lines in a batch. A veto of it fits in a transaction of 2^24 gas (EIP-7825) in any
    /// case.
    uint256 public constant MAX_LINES = 256;

    /// @dev A payout that a dispute took out of its batch. `forfeited`: the payer receives it after the challenge
    /// period.
    struct HeldPayout {
        address provider;
        uint96 net;
        bytes32 jobId;
        bytes32 batchRoot;
        uint88 fee;
        uint24 batchId;
        bool forfeited;
    }

    /// @notice Contracts and accounts with a role in the escrow.
    /// @param treasury Recipient of fees.
    /// @param operator First holder of OPERATOR_ROLE.
    /// @param guardian First holder of GUARDIAN_ROLE and PAUSER_ROLE.
    /// @param disputes The only holder of DISPUTES_ROLE.
    struct Parties {
        address treasury;
        address operator;
        address guardian;
        address disputes;
    }

    /// @notice Seconds between the posting of a batch and its claims.
    uint40 public immutable challengePeriod;
    /// @notice Recipient of fees.
    address public immutable treasury;
    /// @inheritdoc IJobEscrow
    uint256 public batchCount;
    /// @inheritdoc IJobEscrow
    mapping(uint256 batchId => mapping(address provider => uint256)) public withheldOf;

    /// @dev The key is the root, since a Merkle proof leads to it.
    mapping(bytes32 batchRoot => Batch) private _batches;
    /// @dev One bit for each batch, so that a provider pays for a new storage slot once in 256 batches.
    mapping(address provider => mapping(uint256 word => uint256)) private _claimed;
    mapping(bytes32 unitId => HeldPayout) private _heldPayouts;

    /// @param zen The ZEN token.
    /// @param staking_ Staking contract. It gives the lowest fraud penalty of each tier.
    /// @param parties Contracts and accounts with a role in the escrow.
    /// @param feeBps_ First fee in basis points, at most MAX_FEE_BPS.
    /// @param refundDelay_ Seconds after `waitUntil` that the operator has to settle; must exceed the longest job.
    /// @param cancelDelay_ Seconds after a cancellation that the operator has to settle.
    /// @param challengePeriod_ Seconds between the posting of a batch and its claims.
    /// @param adminDelay Seconds between proposing and accepting a new admin.
    /// @param admin First holder of DEFAULT_ADMIN_ROLE.
    constructor(
        IZenToken zen,
        IProviderStaking staking_,
        Parties memory parties,
        uint16 feeBps_,
        uint40 refundDelay_,
        uint40 cancelDelay_,
        uint40 challengePeriod_,
        uint48 adminDelay,
        address admin
    ) ZenIntake(zen, adminDelay, admin, parties.guardian) JobIntake(staking_, feeBps_, refundDelay_, cancelDelay_) {
        require(parties.treasury != address(0), InvalidParameter("treasury"));
        treasury = parties.treasury;
        challengePeriod = challengePeriod_;
        _grantRole(OPERATOR_ROLE, parties.operator);
        _grantRole(GUARDIAN_ROLE, parties.guardian);
        _grantRole(DISPUTES_ROLE, parties.disputes);
    }

    /// @inheritdoc IJobEscrow
    function settle(bytes32 claims, bytes32 units, JobLine[] calldata lines)
        external
        nonReentrant
        onlyRole(OPERATOR_ROLE)
        returns (uint256 batchId)
    {
        require(lines.length > 0, EmptyBatch());
        require(lines.length <= MAX_LINES, TooManyLines(lines.length, MAX_LINES));
        uint256 next = batchCount + 1;
        uint256 net;
        uint256 fee;
        for (uint256 i = 0; i < lines.length; ++i) {
            (uint256 lineNet, uint256 lineFee) = _settleLine(next, lines[i]);
            net += lineNet;
            fee += lineFee;
        }
        if (net + fee == 0) return 0;
        batchCount = batchId = next;
        uint40 claimableAt = (block.timestamp + challengePeriod).toUint40();
        bytes32 batchRoot = _batchRoot(claims, units, lines);
        _batches[batchRoot] = Batch(net.toUint96(), fee.toUint88(), claimableAt, batchId.toUint24(), false);
        emit BatchPosted(batchId, batchRoot, net, fee, claimableAt);
    }

    /// @inheritdoc IJobEscrow
    function veto(uint256 batchId, bytes32 claims, bytes32 units, JobLine[] calldata lines)
        external
        nonReentrant
        onlyRole(GUARDIAN_ROLE)
    {
        bytes32 batchRoot = _batchRoot(claims, units, lines);
        _requireRunning(batchRoot, batchId);
        delete _batches[batchRoot];
        emit BatchVetoed(batchId);
        for (uint256 i = lines.length; i > 0; --i) {
            _revertLine(batchId, lines[i - 1]);
        }
    }

    /// @inheritdoc IJobEscrow
    function claim(address to, Claim[] calldata claims) external nonReentrant returns (uint256 amount) {
        require(to != address(0) && to != address(this), InvalidRecipient(to));
        for (uint256 i = 0; i < claims.length; ++i) {
            amount += _claim(claims[i]);
        }
        token.safeTransfer(to, amount);
    }

    /// @inheritdoc IJobEscrow
    function collectFees(bytes32[] calldata batchRoots) external nonReentrant returns (uint256 amount) {
        for (uint256 i = 0; i < batchRoots.length; ++i) {
            Batch memory batch = _batches[batchRoots[i]];
            require(batch.id > 0, UnknownBatch(batchRoots[i]));
            _requireOver(batch.claimableAt);
            _batches[batchRoots[i]].fee = 0;
            amount += batch.fee;
            emit FeesCollected(batch.id, batch.fee);
        }
        token.safeTransfer(treasury, amount);
    }

    /// @inheritdoc IJobEscrow
    function withhold(uint256 batchId, UnitCommitment calldata unit, uint80 price, bytes32[] calldata proof)
        external
        onlyRole(DISPUTES_ROLE)
        returns (bytes32 unitId)
    {
        bytes32 batchRoot = MerkleProof.processProofCalldata(proof, unit.paidLeaf(price));
        Batch memory batch = _requireRunning(batchRoot, batchId);
        unitId = unit.leaf();
        if (_heldPayouts[unitId].net > 0) {
            (, bool vetoed) = _deleteHeldPayout(unitId);
            require(vetoed, AlreadyWithheld(unitId));
        }

        (uint256 net, uint256 fee) = _payment(_jobs[unit.jobId], price, 1);
        require(net <= batch.net, BatchOverdrawn(batchId, net, batch.net));
        require(fee <= batch.fee, BatchOverdrawn(batchId, fee, batch.fee));
        (batch.net, batch.fee, batch.contested) = (batch.net - net.toUint96(), batch.fee - fee.toUint88(), true);
        _batches[batchRoot] = batch;
        withheldOf[batchId][unit.provider] += net;
        _heldPayouts[unitId] =
            HeldPayout(unit.provider, net.toUint96(), unit.jobId, batchRoot, fee.toUint88(), batch.id, false);
        emit UnitWithheld(unitId, batchId, unit.provider, net, fee);
    }

    /// @inheritdoc IJobEscrow
    function release(bytes32 unitId, bool restored) external nonReentrant onlyRole(DISPUTES_ROLE) returns (bool held) {
        HeldPayout storage unit = _heldPayouts[unitId];
        if (unit.net == 0 || unit.forfeited) return false;
        if (restored) {
            _restore(unitId);
        } else {
            unit.forfeited = true;
            if (block.timestamp >= _batches[unit.batchRoot].claimableAt) _refundForfeited(unitId);
        }
        return true;
    }

    /// @inheritdoc IJobEscrow
    function returnStruck(bytes32 unitId) external nonReentrant {
        HeldPayout storage unit = _heldPayouts[unitId];
        require(unit.forfeited, NotStruck(unitId));
        _requireOver(_batches[unit.batchRoot].claimableAt);
        _refundForfeited(unitId);
    }

    /// @inheritdoc IJobEscrow
    function batches(bytes32 batchRoot) external view returns (Batch memory) {
        return _batches[batchRoot];
    }

    /// @inheritdoc IJobEscrow
    function isClaimed(uint256 batchId, address provider) public view returns (bool) {
        return _claimed[provider][batchId >> 8] >> (batchId & 0xff) & 1 == 1;
    }

    function _settleLine(uint256 batchId, JobLine calldata line) private returns (uint256 net, uint256 fee) {
        Job storage stored = _requireOpen(line.jobId);
        Job memory job = stored;
        require(block.timestamp <= job.settleBy, SettlementEnded(job.settleBy));
        require(line.fromRound == job.nextRound, RoundsNotNext(line.jobId, line.fromRound, job.nextRound));
        bool onlyEnds = line.last && line.units == 0 && line.toRound == line.fromRound;
        require(onlyEnds || line.toRound > line.fromRound, NoRounds(line.jobId));
        require(line.price <= job.maxPrice, PriceAboveMaximum(line.price, job.maxPrice));
        require(line.units <= job.unitsLeft, TooManyUnits(line.units, job.unitsLeft));
        (net, fee) = _payment(job, line.price, line.units);
        require(net + fee <= job.escrowed, BudgetExceeded(net + fee, job.escrowed));

        uint256 rest = job.escrowed - net - fee;
        uint256 refunded = line.last ? rest : 0;
        stored.escrowed = (rest - refunded).toUint96();
        stored.unitsLeft = job.unitsLeft - line.units;
        stored.nextRound = line.toRound;
        if (line.last) stored.state = State.Settled;
        _emitSettled(net > 0 ? batchId : 0, line, net, fee, refunded);
        if (refunded > 0) token.safeTransfer(job.payer, refunded);
    }

    function _emitSettled(uint256 batchId, JobLine calldata line, uint256 net, uint256 fee, uint256 refunded) private {
        emit JobSettled(
            line.jobId,
            batchId,
            line.price,
            line.units,
            line.fromRound,
            line.toRound,
            net,
            fee,
            refunded,
            line.last,
            line.record
        );
    }

    function _revertLine(uint256 batchId, JobLine calldata line) private {
        Job storage job = _jobs[line.jobId];
        (uint256 net, uint256 fee) = _payment(job, line.price, line.units);
        job.unitsLeft += line.units;
        // Rounds of a later batch stay settled. Waiting for its veto could delay this one indefinitely.
        if (job.nextRound == line.toRound) job.nextRound = line.fromRound;
        bool refunded = job.state == State.Refunded;
        emit SettlementReverted(line.jobId, batchId, net, fee, refunded);
        if (refunded) {
            token.safeTransfer(job.payer, net + fee);
        } else {
            job.state = State.Open;
            uint40 settleBy = (block.timestamp + cancelDelay).toUint40();
            if (settleBy > job.settleBy) job.settleBy = settleBy;
            job.escrowed += (net + fee).toUint96();
        }
    }

    function _claim(Claim calldata item) private returns (uint256 amount) {
        amount = item.amount;
        bytes32 batchRoot = MerkleProof.processProofCalldata(item.proof, Messages.claimLeaf(msg.sender, amount));
        Batch storage batch = _batches[batchRoot];
        (uint256 batchId, uint256 net, bool contested) = (batch.id, batch.net, batch.contested);
        require(batchId > 0, UnknownBatch(batchRoot));
        _requireOver(batch.claimableAt);
        mapping(uint256 word => uint256) storage claimed = _claimed[msg.sender];
        uint256 bits = claimed[batchId >> 8];
        // forge-lint: disable-next-line(incorrect-shift)
        uint256 bit = 1 << (batchId & 0xff); // the literal on the left is intended
        require(bits & bit == 0, AlreadyClaimed(batchId, msg.sender));
        claimed[batchId >> 8] = bits | bit;

        if (contested) {
            uint256 withheld = withheldOf[batchId][msg.sender];
            require(amount > withheld, AllWithheld(batchId, msg.sender));
            amount -= withheld;
        }
        require(amount <= net, BatchOverdrawn(batchId, amount, net));
        batch.net = (net - amount).toUint96();
        emit Claimed(batchId, msg.sender, amount);
    }

    function _restore(bytes32 unitId) private {
        (HeldPayout memory unit, bool vetoed) = _deleteHeldPayout(unitId);
        if (vetoed) return;
        Batch storage batch = _batches[unit.batchRoot];
        batch.fee += unit.fee;
        withheldOf[unit.batchId][unit.provider] -= unit.net;
        bool claimed = isClaimed(unit.batchId, unit.provider);
        emit UnitRestored(unitId, unit.batchId, unit.net, unit.fee, claimed);
        if (claimed) token.safeTransfer(unit.provider, unit.net);
        else batch.net += unit.net;
    }

    function _refundForfeited(bytes32 unitId) private {
        (HeldPayout memory unit, bool vetoed) = _deleteHeldPayout(unitId);
        if (vetoed) return;
        uint256 gross = uint256(unit.net) + unit.fee;
        emit UnitStruck(unitId, unit.jobId, unit.batchId, gross);
        token.safeTransfer(_jobs[unit.jobId].payer, gross);
    }

    /// @dev Deletes a held payout. A vetoed batch has already returned everything to its jobs, including this payout.
    function _deleteHeldPayout(bytes32 unitId) private returns (HeldPayout memory unit, bool vetoed) {
        unit = _heldPayouts[unitId];
        delete _heldPayouts[unitId];
        vetoed = _batches[unit.batchRoot].id != unit.batchId;
        if (vetoed) emit UnitRestored(unitId, unit.batchId, unit.net, unit.fee, false);
    }

    /// @dev Returns the pay for `units` units of a job. Exact, since a unit's price is a multiple of BPS.
    function _payment(Job memory job, uint80 price, uint256 units) private pure returns (uint256 net, uint256 fee) {
        if (units == 0) return (0, 0);
        uint256 gross = _payableUnitPrice(price, job.unitWeight) * units;
        fee = gross * job.feeBps / BPS;
        net = gross - fee;
    }

    /// @dev The hash of all arguments binds their order, which sorted pairs do not. So a root has one split, and since
    /// lines settle rounds once, one batch. Claims have the shortest path, since their proofs are sent most often.
    function _batchRoot(bytes32 claims, bytes32 units, JobLine[] calldata lines) private pure returns (bytes32) {
        bytes32 settlement = keccak256(abi.encode(claims, units, lines));
        return Hashes.commutativeKeccak256(claims, Hashes.commutativeKeccak256(units, settlement));
    }

    function _requireRunning(bytes32 batchRoot, uint256 batchId) private view returns (Batch memory batch) {
        batch = _batches[batchRoot];
        require(batch.id == batchId && batchId > 0, UnknownBatch(batchRoot));
        require(block.timestamp < batch.claimableAt, ChallengePeriodOver(batch.claimableAt));
    }

    function _requireOver(uint40 claimableAt) private view {
        require(block.timestamp >= claimableAt, ChallengePeriodRunning(claimableAt));
    }
}
