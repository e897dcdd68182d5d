// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {IOmissions} from "../../src/interfaces/IOmissions.sol";
import {IZenToken} from "../../src/interfaces/IZenToken.sol";
import {Omissions} from "../../src/Omissions.sol";
import {DisputeFixture} from "../base/DisputeFixture.sol";

/// @notice The acknowledgement vectors, which the Python side satisfies too.
contract OmissionVectorsTest is DisputeFixture {
    function test_acknowledgements_matchVectors() public {
        string memory json = vm.readFile("../tests/vectors/acknowledgements.json");
        IOmissions.Terms memory terms = IOmissions.Terms(1, 1, 1, 1, 1);
        Omissions here = new Omissions(
            IZenToken(address(token)), windows, terms, 1 days, address(this), address(this), address(this)
        );
        // same code, address and chain as in the vectors
        Omissions there = Omissions(vm.parseJsonAddress(json, ".verifyingContract"));
        vm.etch(address(there), address(here).code);
        vm.chainId(vm.parseJsonUint(json, ".chainId"));

        address signer = vm.parseJsonAddress(json, ".signer");
        uint256 count;
        for (string memory entry = _billAt(0); vm.keyExistsJson(json, entry); entry = _billAt(count)) {
            bytes32 unitId = vm.parseJsonBytes32(json, string.concat(entry, ".unitId"));
            uint256 includeBy = vm.parseJsonUint(json, string.concat(entry, ".includeBy"));
            bytes32 digest = there.acknowledgementDigest(unitId, uint40(includeBy));
            vm.assertEq(digest, vm.parseJsonBytes32(json, string.concat(entry, ".digest")));
            bytes memory signature = vm.parseJsonBytes(json, string.concat(entry, ".signature"));
            vm.assertEq(ECDSA.recover(digest, signature), signer);
            ++count;
        }
        vm.assertEq(count, 3);
    }

    function _billAt(uint256 index) private pure returns (string memory) {
        return string.concat(".acknowledgements[", vm.toString(index), "]");
    }
}
