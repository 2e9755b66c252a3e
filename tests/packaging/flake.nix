# Evaluates flake.nix against a stub of nixpkgs that has only the names that the flake uses.
# nix-instantiate --eval --strict --json tests/packaging/flake.nix
let
  flake = import ../../flake.nix;
  lib = {
    genAttrs = names: make: builtins.listToAttrs (map (name: { inherit name; value = make name; }) names);
    mkIf = condition: content: if condition then content else { };
    mkEnableOption = description: { inherit description; default = false; };
    mkOption = option: option;
    types.package = "package";
    licenses = { mit = "MIT"; asl20 = "Apache-2.0"; };
  };
  tools = lib.genAttrs [ "binutils" "cargo" "clippy" "gnugrep" "gnused" "installShellFiles" "rustc" "rustfmt" "sdcc" "wireshark-cli" ] (name: name);
  pkgsOf = system: tools // {
    inherit lib;
    stdenv.hostPlatform = { inherit system; };
    mkShell = shell: shell;
    rustPlatform.buildRustPackage = package: package // { outPath = "/nix/store/asmpatch"; };
  };
  self = flake.outputs { inherit self; nixpkgs = { inherit lib; legacyPackages = lib.genAttrs systems pkgsOf; }; } // { outPath = "source"; };
  systems = [ "x86_64-linux" "aarch64-linux" "armv7l-linux" "aarch64-darwin" ];
  # The module on a host that sets these options.
  module = chosen:
    let
      host = self.nixosModules.default {
        inherit lib;
        pkgs = pkgsOf "aarch64-linux";
        config.programs.asmpatch = builtins.mapAttrs (name: option: option.default) host.options.programs.asmpatch // chosen;
      };
    in
    host.config;
  package = self.packages.aarch64-linux.default;
in
{
  inherit (package) pname version;
  inherit (package.meta) homepage description mainProgram;
  # Source paths. A missing one ends the evaluation.
  lockFile = builtins.pathExists package.cargoLock.lockFile;
  inherit (package) postInstall;
  systems = builtins.attrNames self.packages;
  shell = self.devShells.x86_64-linux.default.packages;
  off = module { };
  on = builtins.removeAttrs (module { enable = true; }) [ "environment" ];
  reset = (module { enable = true; resetSlowDocks = true; }).systemd.services.asmpatch-reset;
}
