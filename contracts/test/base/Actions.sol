// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IJobEscrow} from "../../src/interfaces/IJobEscrow.sol";
import {JobOrder} from "../../src/Messages.sol";
import {Network} from "./Network.sol";

/// @notice Random moves of payers, providers, the operator and time on one network, with a record of where the ZEN must
/// be by them. The invariant suite calls these; each keeps its arguments within what is allowed, so none may revert.
contract Actions is Network {
    bytes32[] public jobIds;
    uint256 public escrowed; // in open jobs
    uint256 public paidIn; // by payers, ever
    uint256 public paidOut; // to providers, treasury and back, ever
    uint256 public staked; // by providers, ever
    uint256 public withdrawn;
    uint256 public burned;
    mapping(address provider => uint256) public earned;
    mapping(address provider => uint256) public releasedAt; // when a provider's last request may leave

    uint256 private nonce;

    // --- jobs

    function openJob(uint32 units, uint96 budget, uint40 patience) external {
        JobOrder memory order = _order(uint32(_bound(units, 1, 50)), uint96(_bound(budget, UNIT, 2 ether)));
        order.waitUntil = uint40(block.timestamp + _bound(patience, 0, 3 days));
        order.nonce = ++nonce;
        if (escrow.paused()) return;
        jobIds.push(_open(order));
        escrowed += order.budget;
        paidIn += order.budget;
    }

    function settleJob(uint256 pick, uint96 price, uint32 first, uint32 second) external {
        (bytes32 jobId, IJobEscrow.Job memory job) = _pickOpen(pick);
        if (job.payer == address(0) || block.timestamp > job.waitUntil + REFUND_DELAY) return;
        price = uint96(_bound(price, PRICE / 4, PRICE));
        uint256 unit = escrow.unitPrice(price, job.unitWeight);
        uint256 affordable = job.escrowed / unit < job.units ? job.escrowed / unit : job.units;
        first = uint32(_bound(first, 0, affordable));
        second = uint32(_bound(second, 0, affordable - first));

        uint256 feesBefore = token.balanceOf(address(treasury));
        if (first == 0) _settle(jobId, price, _noPayments());
        else if (second == 0) _settle(jobId, price, _payments(provider(0), first));
        else _settle(jobId, price, _payments(provider(0), first, provider(1), second));

        uint256 gross = first == 0 ? 0 : unit * (first + second);
        require(token.balanceOf(address(treasury)) - feesBefore == gross / 20, "fee");
        escrowed -= job.escrowed;
        paidOut += job.escrowed;
        if (first > 0) earned[provider(0)] += (unit - unit / 20) * first;
        if (first > 0) earned[provider(1)] += (unit - unit / 20) * second;
    }

    function refundJob(uint256 pick) external {
        (bytes32 jobId, IJobEscrow.Job memory job) = _pickOpen(pick);
        if (job.payer == address(0) || block.timestamp <= job.waitUntil + REFUND_DELAY) return;
        escrow.refund(jobId);
        escrowed -= job.escrowed;
        paidOut += job.escrowed;
    }

    // --- stakes

    function stake(uint256 pick, uint96 amount) external {
        if (staking.paused()) return;
        amount = uint96(_bound(amount, 1, 1_000 ether));
        _stake(provider(pick), amount);
        staked += amount;
    }

    function requestUnstake(uint256 pick, uint96 amount) external {
        address account = provider(pick);
        uint256 available = staking.stakeOf(account);
        if (available == 0) return;
        vm.prank(account);
        staking.requestUnstake(uint96(_bound(amount, 1, available)));
        releasedAt[account] = block.timestamp + UNBONDING_DELAY;
    }

    function withdraw(uint256 pick) external {
        address account = provider(pick);
        uint256 amount = staking.accountOf(account).unbonding;
        if (amount == 0 || block.timestamp < releasedAt[account]) return;
        vm.prank(account);
        staking.withdraw();
        withdrawn += amount;
        earned[account] += amount;
    }

    function slash(uint256 pick, uint8 offence) external {
        vm.prank(operator);
        (uint256 amount,) = staking.slash(provider(pick), uint8(_bound(offence, 2, 4)), bytes32(++nonce));
        burned += amount;
    }

    function release(uint256 pick) external {
        if (!staking.isJailed(provider(pick))) return;
        vm.prank(admin);
        staking.release(provider(pick));
    }

    // --- the world

    function pause(bool stakes) external {
        if (stakes ? staking.paused() : escrow.paused()) return;
        vm.prank(admin);
        if (stakes) staking.pause();
        else escrow.pause();
    }

    function wait(uint256 time) external {
        vm.warp(block.timestamp + _bound(time, 1 minutes, 10 days));
    }

    // --- what is

    function provider(uint256 pick) public pure returns (address) {
        return address(uint160(0x7000 + pick % 3)); // ascending, as settlement wants them
    }

    function jobCount() external view returns (uint256) {
        return jobIds.length;
    }

    function network() external view returns (address, address, address, address, address) {
        return (address(token), address(treasury), address(staking), address(escrow), payer);
    }

    function _pickOpen(uint256 pick) private view returns (bytes32 jobId, IJobEscrow.Job memory job) {
        if (jobIds.length == 0) return (jobId, job);
        uint256 start = pick % jobIds.length;
        for (uint256 i = 0; i < jobIds.length; ++i) {
            jobId = jobIds[(start + i) % jobIds.length];
            if (escrow.jobs(jobId).state == IJobEscrow.State.Open) return (jobId, escrow.jobs(jobId));
        }
    }
}
