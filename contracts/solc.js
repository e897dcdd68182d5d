#!/usr/bin/env -S node --stack-size=60000
// A native-looking `solc` for forge: the WebAssembly compiler from npm behind the two calls that forge makes,
// `--version` and `--standard-json`. Deep recursion in the compiler needs more stack than Node's default.
'use strict'

const fs = require('node:fs')
const solc = require('solc')

/** Writes everything before returning: an asynchronous write into a pipe is cut off when the process exits. */
function writeAll (text) {
  const bytes = Buffer.from(text, 'utf8')
  let done = 0
  while (done < bytes.length) {
    try {
      done += fs.writeSync(1, bytes, done)
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error // the pipe is full: try again
    }
  }
}

if (process.argv.includes('--version')) {
  // forge reads the version from the second line, in the form that the native compiler prints
  const version = solc.version().replace('.Emscripten.clang', '.Linux.g++')
  writeAll(`solc, the solidity compiler commandline interface\nVersion: ${version}\n`)
} else if (process.argv.includes('--standard-json')) {
  writeAll(solc.compile(fs.readFileSync(0, 'utf8')))
} else {
  process.stderr.write('solc.js: expected --version or --standard-json (input on stdin)\n')
  process.exitCode = 2
}
