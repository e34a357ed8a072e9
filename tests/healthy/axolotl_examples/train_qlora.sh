#!/bin/bash
accelerate launch -m axolotl.cli.train mistral_qlora.yml
