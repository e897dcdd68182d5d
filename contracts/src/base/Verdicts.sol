// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {Objection, DisputeMessages, Verdict} from "../DisputeMessages.sol";
import {IVerdicts} from "../interfaces/IVerdicts.sol";
import {Challenges} from "./Challenges.sol";
import {Referees} from "./Referees.sol";

/// @title Verdict signatures: counting, and penalties for wrong ones
abstract contract Verdicts is IVerdicts, Challenges, Referees, EIP712 {
    using DisputeMessages for Objection;
    using DisputeMessages for Verdict;

    /// @notice Row of the penalty table for a referee that signed against all others of its committee.
    uint8 public constant WRONG_VERDICT = 5;
    /// @notice Row of the penalty table for equivocation of a referee.
    uint8 public constant CONTRADICTION = 6;

    mapping(bytes32 verdictDigest => SeatVotes) private _storedVotes;

    /// @dev Signatures for one verdict, one bit for each seat.
    /// @param verdictSeats Seats with a Verdict signature.
    /// @param objectionSeats Seats with an Objection signature.
    struct SeatVotes {
        uint16 verdictSeats;
        uint16 objectionSeats;
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
        _slashReferee(disputeId, draw, referee, CONTRADICTION);
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
        _slashReferee(disputeId, draw, committee[odd], WRONG_VERDICT);
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
        return _seatsOf(_storedVotes[verdictDigest(disputeId, draw, true)])
            | _seatsOf(_storedVotes[verdictDigest(disputeId, draw, false)]);
    }

    function _requireCommittee(bytes32 disputeId, address[] calldata committee) internal view {
        require(keccak256(abi.encode(committee)) == _disputes[disputeId].committee, WrongCommittee());
    }

    /// @dev Verifies every signature that is not empty and adds it to the stored ones. A member has one seat. So it
    /// counts once, even with a Verdict and an Objection signature.
    /// @return votes Number of members that signed for this outcome.
    /// @return seatVotes Their seats.
    function _countVotes(
        bytes32 disputeId,
        bool providerCorrect,
        address[] calldata committee,
        bytes[] calldata signatures
    ) internal view returns (uint256 votes, SeatVotes memory seatVotes) {
        _requireCommittee(disputeId, committee);
        require(committee.length == signatures.length, WrongCommittee());
        uint32 draw = _disputes[disputeId].draw;
        bytes32 verdict = verdictDigest(disputeId, draw, providerCorrect);
        seatVotes = _storedVotes[verdict];
        for (uint256 i = 0; i < committee.length; ++i) {
            uint16 seat = uint16(1 << i);
            if (signatures[i].length > 0) {
                if (_signerOf(verdict, signatures[i]) == committee[i]) {
                    seatVotes.verdictSeats |= seat;
                } else {
                    bool isObjection = _signerOf(objectionDigest(disputeId, draw), signatures[i]) == committee[i];
                    require(isObjection && !providerCorrect, InvalidVerdictSignature(committee[i]));
                    seatVotes.objectionSeats |= seat;
                }
            }
            if (_seatsOf(seatVotes) & seat > 0) ++votes;
        }
    }

    /// @dev Stores signatures below the quorum for later calls.
    function _storePartialVotes(bytes32 disputeId, bool providerCorrect, SeatVotes memory seatVotes) internal {
        uint32 draw = _disputes[disputeId].draw;
        _storedVotes[verdictDigest(disputeId, draw, providerCorrect)] = seatVotes;
        emit VotesKept(disputeId, draw, providerCorrect, _seatsOf(seatVotes));
    }

    /// @dev Returns the members with a Verdict signature, each at its seat; zero for the others.
    function _verdictSigners(address[] calldata committee, SeatVotes memory seatVotes)
        internal
        pure
        returns (address[] memory signers)
    {
        signers = new address[](committee.length);
        for (uint256 i = 0; i < committee.length; ++i) {
            if (seatVotes.verdictSeats & (1 << i) > 0) signers[i] = committee[i];
        }
    }

    /// @dev Burns a dispute share of the penalty too, in case the table defines one.
    function _slashReferee(bytes32 disputeId, uint32 draw, address referee, uint8 offence) private {
        bytes32 evidence = keccak256(abi.encode(disputeId, draw, referee, offence));
        (, uint256 share) = staking.slash(referee, offence, evidence);
        token.burn(share);
        emit RefereePunished(disputeId, draw, referee, offence);
    }

    function _seatsOf(SeatVotes memory seatVotes) private pure returns (uint256) {
        return seatVotes.verdictSeats | seatVotes.objectionSeats;
    }

    function _signerOf(bytes32 digest, bytes calldata signature) private pure returns (address signer) {
        (signer,,) = ECDSA.tryRecoverCalldata(digest, signature);
    }
}
