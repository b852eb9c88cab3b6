// Starts the emulator with this script's arguments, and ends with its standard input: nothing stays behind when a test is killed.
process.stdin.resume().on("end", () => process.exit());
require("@vercel/cosmosdb-server/lib/cli");
