// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {Objection, DisputeMessages, Verdict} from "../DisputeMessages.sol";
import {IVerdicts} from "../interfaces/IVerdicts.sol";
import {Challenges} from "./Challenges.sol";
import {Referees} from "./Referees.sol";

/// @title What referees sign: when it decides, and what it costs them if it was wrong
abstract contract Verdicts is IVerdicts, Challenges, Referees, EIP712 {
    using DisputeMessages for Objection;
    using DisputeMessages for Verdict;

    /// @notice Row of the penalty table for a referee that signed against all others of its committee.
    uint8 public constant WRONG_VERDICT = 5;
    /// @notice Row of the penalty table for a referee that signed both ways.
    uint8 public constant CONTRADICTION = 6;

    mapping(bytes32 verdictDigest => Ballot) private _ballots;

    /// @dev Who signed for an outcome, one bit for each seat.
    /// @param judges Those that signed the verdict.
    /// @param objectors Those that signed an objection.
    struct Ballot {
        uint16 judges;
        uint16 objectors;
    }

    constructor() EIP712("ZooDisputes", "1") {}

    /// @inheritdoc IVerdicts
    function proveContradiction(
        bytes32 disputeId,
        uint32 draw,
        bytes calldata forProvider,
        bytes calldata forChallenger
    ) external nonReentrant {
        address referee = _signerOf(verdictDigest(disputeId, draw, true), forProvider);
        address again = _signerOf(verdictDigest(disputeId, draw, false), forChallenger);
        require(referee == again && referee != address(0), NoContradiction());
        _punish(disputeId, draw, referee, CONTRADICTION);
    }

    /// @inheritdoc IVerdicts
    function proveWrongVerdict(
        bytes32 disputeId,
        bool providerCorrect,
        address[] calldata committee,
        bytes[] calldata signatures,
        uint256 odd
    ) external nonReentrant {
        _requireCommittee(disputeId, committee);
        require(committee.length == signatures.length, WrongCommittee());
        require(committee.length > 2, TooFewMembers(committee.length));
        uint256 end = uint256(_disputes[disputeId].deadline) + _disputePeriod;
        require(block.timestamp <= end, ProofTooLate(end));
        uint32 draw = _disputes[disputeId].draw;
        bytes32 others = verdictDigest(disputeId, draw, providerCorrect);
        bytes32 opposite = verdictDigest(disputeId, draw, !providerCorrect);
        for (uint256 i = 0; i < committee.length; ++i) {
            address signer = _signerOf(i == odd ? opposite : others, signatures[i]);
            require(signer == committee[i], InvalidVerdictSignature(committee[i]));
        }
        _punish(disputeId, draw, committee[odd], WRONG_VERDICT);
    }

    /// @inheritdoc IVerdicts
    function verdictDigest(bytes32 disputeId, uint32 draw, bool providerCorrect) public view returns (bytes32) {
        return _hashTypedDataV4(Verdict(disputeId, draw, providerCorrect).hash());
    }

    /// @inheritdoc IVerdicts
    function objectionDigest(bytes32 disputeId, uint32 draw) public view returns (bytes32) {
        return _hashTypedDataV4(Objection(disputeId, draw).hash());
    }

    /// @inheritdoc IVerdicts
    function signedSeats(bytes32 disputeId) public view returns (uint256) {
        uint32 draw = _disputes[disputeId].draw;
        return _voters(_ballots[verdictDigest(disputeId, draw, true)])
            | _voters(_ballots[verdictDigest(disputeId, draw, false)]);
    }

    function _requireCommittee(bytes32 disputeId, address[] calldata committee) internal view {
        require(keccak256(abi.encode(committee)) == _disputes[disputeId].committee, WrongCommittee());
    }

    /// @dev Checks every signature that is not empty, and adds them to those that are here already. A member has one place in the
    /// list, so nobody counts twice, not by signing both a verdict and an objection either.
    /// @return votes How many members signed for this outcome.
    /// @return ballot Who they are.
    function _countVotes(
        bytes32 disputeId,
        bool providerCorrect,
        address[] calldata committee,
        bytes[] calldata signatures
    ) internal view returns (uint256 votes, Ballot memory ballot) {
        _requireCommittee(disputeId, committee);
        require(committee.length == signatures.length, WrongCommittee());
        uint32 draw = _disputes[disputeId].draw;
        bytes32 verdict = verdictDigest(disputeId, draw, providerCorrect);
        ballot = _ballots[verdict];
        for (uint256 i = 0; i < committee.length; ++i) {
            uint16 seat = uint16(1 << i);
            if (signatures[i].length > 0) {
                if (_signerOf(verdict, signatures[i]) == committee[i]) {
                    ballot.judges |= seat;
                } else {
                    bool objects = _signerOf(objectionDigest(disputeId, draw), signatures[i]) == committee[i];
                    require(objects && !providerCorrect, InvalidVerdictSignature(committee[i]));
                    ballot.objectors |= seat;
                }
            }
            if (_voters(ballot) & seat > 0) ++votes;
        }
    }

    /// @dev Keeps what did not decide, for whoever adds the rest.
    function _keepVotes(bytes32 disputeId, bool providerCorrect, Ballot memory ballot) internal {
        uint32 draw = _disputes[disputeId].draw;
        _ballots[verdictDigest(disputeId, draw, providerCorrect)] = ballot;
        emit VotesKept(disputeId, draw, providerCorrect, _voters(ballot));
    }

    /// @dev Those of a committee that signed a verdict, each in its place; zero for the others.
    function _judgesOf(address[] calldata committee, Ballot memory ballot)
        internal
        pure
        returns (address[] memory judges)
    {
        judges = new address[](committee.length);
        for (uint256 i = 0; i < committee.length; ++i) {
            if (ballot.judges & (1 << i) > 0) judges[i] = committee[i];
        }
    }

    /// @dev What a share of the penalty brings, should the table ever have one, is burned as the rest is.
    function _punish(bytes32 disputeId, uint32 draw, address referee, uint8 offence) private {
        bytes32 evidence = keccak256(abi.encode(disputeId, draw, referee, offence));
        (, uint256 share) = staking.slash(referee, offence, evidence);
        token.burn(share);
        emit RefereePunished(disputeId, draw, referee, offence);
    }

    function _voters(Ballot memory ballot) private pure returns (uint256) {
        return ballot.judges | ballot.objectors;
    }

    function _signerOf(bytes32 digest, bytes calldata signature) private pure returns (address signer) {
        (signer,,) = ECDSA.tryRecoverCalldata(digest, signature);
    }
}
